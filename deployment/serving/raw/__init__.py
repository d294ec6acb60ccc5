"""Raw rows: columns that a model reads, and their encoding as its tensors."""
