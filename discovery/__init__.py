"""Finding other nodes. Each way of finding them is a `Finder`; what it reports is unverified (see finder.py).

Cheap to import: zeroconf is loaded when a `MdnsFinder` first runs, or earlier by `load_zeroconf`.
"""
