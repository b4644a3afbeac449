"""One module per paper: its figures and its claims."""
