"""All rules over several options, in the order in which their problems are told."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tf_scheduler.errors import Problem

from . import api_rules as api
from . import job_rules as jobs
from . import plan_rules as plans
from . import secret_rules as secrets
from . import service_rules as service
from . import volume_rules as volumes

#: Resolved options -> what is wrong with them together.
Rule = Callable[[Mapping[str, Any]], Iterator[Problem]]

RULES: tuple[Rule, ...] = (
    service.the_service_name_is_a_marathon_id,
    service.the_service_name_fits_into_a_host_name,
    service.the_role_is_one_that_mesos_accepts,
    service.the_principal_is_the_service_account,
    service.a_service_accounts_secret_needs_the_account,
    jobs.there_is_something_to_run,
    jobs.every_job_has_a_program,
    jobs.parameter_server_strategy_has_a_chief_workers_and_parameter_servers,
    jobs.mirrored_strategy_has_workers_and_no_parameter_servers,
    jobs.between_graph_has_a_worker,
    jobs.workers_of_their_own_have_no_parameter_servers,
    jobs.workers_that_never_end_do_not_decide_success,
    service.a_job_name_comes_with_its_file,
    service.data_is_where_agents_fetch_from,
    service.the_job_context_is_a_json_object,
    service.named_addresses_need_a_virtual_network,
    service.network_labels_are_pairs,
    service.kerberos_knows_its_centre_realm_and_keytab,
    jobs.reservations_have_a_role_of_their_own,
    secrets.each_secret_has_a_destination,
    secrets.secrets_are_for_jobs_that_there_are,
    secrets.secrets_do_not_overwrite_each_other,
    secrets.secrets_have_sources_that_can_be_read,
    secrets.secrets_get_variables_with_names,
    secrets.secrets_get_files_in_the_working_directory,
    secrets.secrets_get_files_that_are_nothing_else,
    secrets.references_are_for_variables,
    secrets.secrets_that_reload_are_files_that_change,
    secrets.vault_sources_need_a_vault,
    secrets.addresses_of_secrets_are_web_addresses,
    secrets.the_schedulers_own_secrets_are_near,
    secrets.a_principals_secret_needs_the_principal,
    volumes.volumes_are_for_jobs_that_there_are,
    volumes.volumes_are_at_absolute_paths_of_the_agents,
    volumes.volumes_are_found_at_paths,
    volumes.volumes_do_not_hide_each_other,
    jobs.liveness_has_something_to_look_at,
    jobs.fewer_workers_are_for_collective_training,
    jobs.the_longest_wait_is_no_shorter_than_the_first,
    plans.plans_of_the_user_have_names_of_their_own,
    plans.phases_of_a_plan_have_different_names,
    plans.indexes_of_tasks_are_those_of_their_job,
    plans.no_plan_has_two_steps_for_a_task,
    plans.phases_wait_for_phases_of_their_own_plan,
    plans.phases_do_not_wait_for_themselves,
    plans.every_job_is_launched_by_some_plan,
    plans.an_update_has_a_phase_for_every_job_of_the_deployment,
    plans.tasks_that_must_know_every_address_are_launched_together,
    plans.the_chief_waits_for_no_phase_that_waits_for_it,
    service.a_certificate_comes_with_its_key,
    service.tls_files_are_for_encrypted_connections,
    service.a_statsd_server_is_a_host_and_a_port,
    api.the_apis_certificate_comes_with_its_key,
    api.client_certificates_need_https,
    api.writers_have_certificates,
    api.an_open_api_has_no_credentials,
    api.tokens_are_sources,
)
