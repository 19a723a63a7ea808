"""Write the repository's DAGs into Airflow's own database, as its DAG processor does."""

from airflow.dag_processing.bundles.manager import DagBundlesManager
from airflow.dag_processing.dagbag import BundleDagBag, sync_bag_to_db

from run_dag import DAGS

if __name__ == "__main__":
    DagBundlesManager().sync_bundles_to_db()
    sync_bag_to_db(BundleDagBag(DAGS, bundle_path=DAGS, bundle_name="dags-folder"), "dags-folder", None)
