"""Looking after an installation and its runs."""
