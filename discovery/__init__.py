"""Finding other nodes: each way is a `Finder`. What is found is unverified (see finder.py).

Cheap to import: zeroconf is loaded when a `MdnsFinder` first runs, or before by `load_zeroconf`.
"""
