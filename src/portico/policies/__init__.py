"""Who may see and do what; each link only narrows."""
