"""`python -m bench`: what the mesh costs, measured beside raw pyzmq in the same run. See README.md."""
