"""The dashboard: pages for a browser under `/dashboard/`, made by plain scripts in it from JSON under `/api/v1/`.

It shows the whole cluster, whichever node serves it: that node asks the others as the command line tool does. The dashboard only
reads, unless `--dashboard_actions` is given. Nothing is loaded from other sites.
"""
