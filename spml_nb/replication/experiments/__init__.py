"""Questions beyond the papers, each with its plan of runs, its sweep and its page."""
