"""The page of figures: written from what the bench measured, never by hand."""
