"""The REST surface: the four tiers of disclosure, what operators read, and what monitors ask."""
