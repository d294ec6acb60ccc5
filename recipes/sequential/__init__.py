"""Family of SIM, DIEN and DIN."""
