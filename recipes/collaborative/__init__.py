"""Family of NCF: NeuMF, GMF and MLP."""
