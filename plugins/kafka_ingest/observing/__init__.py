"""Answers about feeds, for people and scripts, through ports; reads only, but for the rows of alerts."""
