"""Tools as text within a budget: signatures, cards, examples and token counts."""
