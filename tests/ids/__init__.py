"""The table of devices/claimd_devices/ids.tsv: `make ids` writes it from the lists that others keep."""
