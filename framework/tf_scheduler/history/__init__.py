"""What became of each run: recorded while it goes on, kept after its end, compared, and repeated."""
