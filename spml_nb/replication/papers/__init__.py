"""The papers one by one: what each claims in its text."""
