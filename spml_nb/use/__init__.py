"""Trained networks at work: prediction and export."""
