"""The table of devices/ids.tsv: `make ids` writes it from the lists that others keep."""
