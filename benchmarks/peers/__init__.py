"""Whatever a user may pick, behind one port; each module is imported when its peer is asked for."""
