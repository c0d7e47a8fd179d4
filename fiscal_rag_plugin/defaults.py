"""What a retriever of either framework and the CLI ask for when nobody says otherwise."""

DEFAULT_TOP_K = 8
DEFAULT_SCORE_THRESHOLD = 0.82
