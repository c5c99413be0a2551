"""A job every night by Airflow: a copy of this file in its folder of DAGs. A retry resumes the run that stopped."""

from datetime import datetime, timedelta

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG

FOLDER = "/srv/jobs"  # with nightly.toml, which 'distagg new nightly /srv/jobs' writes
RUN = "distagg run nightly.toml || [ $? -eq 1 ]"  # 1 is done, but a fit did not converge
STATUS = "distagg status runs/nightly/latest"

with DAG("distagg_nightly", schedule="0 2 * * *", start_date=datetime(2026, 1, 1), catchup=False) as dag:
    again = {"retries": 3, "retry_delay": timedelta(minutes=5)}
    run = BashOperator(task_id="run", bash_command=RUN, cwd=FOLDER, **again)
    run >> BashOperator(task_id="status", bash_command=STATUS, cwd=FOLDER)
