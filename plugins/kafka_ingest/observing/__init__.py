"""Answers about feeds, for people and scripts, through ports. Reads only."""
