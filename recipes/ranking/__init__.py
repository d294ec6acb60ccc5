"""Family of DLRM and DCNv2."""
