"""The composition root and the user's commands: the one room that constructs things."""
