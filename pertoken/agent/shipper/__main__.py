"""Run the shipper child: `python -m pertoken.agent.shipper FOLDER`."""

from pertoken.agent.shipper.child import main

main()
