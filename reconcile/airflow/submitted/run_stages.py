"""What spark-submit is given: alone in its folder, because Python looks for every import beside a script first."""

from __future__ import annotations

from reconcile.airflow.application import main

main()
