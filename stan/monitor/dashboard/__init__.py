"""The dashboard: pages under `/dashboard/` whose scripts show the JSON under `/api/v1/` in the browser.

It shows the whole cluster, whichever node serves it: this node sends the other nodes the requests that the command line tool
sends, too. The dashboard only reads, unless `--dashboard_actions` is given. Nothing is loaded from other sites.
"""
