"""Answers about feeds, for people and scripts. Reads only."""
