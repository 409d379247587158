"""An explicit measurement of one idle inference server with a load of its own.

Front door: `script` (what is sent), `server_watch` (whether anybody else uses the server), `run` (the measurement).
"""
