"""The page of figures, written from the results of the bench and never by hand."""
