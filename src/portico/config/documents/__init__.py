"""Documents as trees whose values remember where they were written."""
