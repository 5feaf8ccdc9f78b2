"""Table of all rules over several options, in the order of their messages."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tf_scheduler.errors import Problem

from . import jobs, plans, secrets, service

#: Function from resolved options to problems.
Rule = Callable[[Mapping[str, Any]], Iterator[Problem]]

RULES: tuple[Rule, ...] = (
    service.service_name_is_marathon_id,
    service.service_name_fits_host_name,
    service.role_is_valid,
    service.principal_is_service_account,
    service.account_secret_needs_account,
    jobs.some_job_has_tasks,
    jobs.every_job_has_command,
    jobs.parameter_server_strategy_has_required_jobs,
    jobs.mirrored_strategy_has_no_parameter_servers,
    jobs.between_graph_has_worker,
    jobs.independent_strategies_have_no_parameter_servers,
    jobs.success_policy_fits_strategy,
    service.job_name_needs_job_url,
    service.data_has_fetchable_urls,
    service.job_context_is_json_object,
    service.named_addressing_needs_virtual_network,
    service.network_labels_are_pairs,
    service.kerberos_has_required_options,
    jobs.reserve_mode_needs_role,
    secrets.secret_has_destination,
    secrets.secret_jobs_exist,
    secrets.secret_destinations_are_unique,
    secrets.secret_sources_are_valid,
    secrets.secret_variables_are_valid,
    secrets.secret_files_are_relative,
    secrets.secret_files_are_unused,
    secrets.references_need_variables,
    secrets.reloadable_secrets_are_files,
    secrets.vault_sources_need_vault,
    secrets.secret_urls_are_http,
    secrets.scheduler_secrets_are_local,
    secrets.mesos_secret_needs_principal,
    secrets.volume_jobs_exist,
    secrets.volume_host_paths_are_absolute,
    secrets.volume_container_paths_are_valid,
    secrets.volume_paths_are_unique,
    jobs.liveness_has_target,
    jobs.min_count_needs_mirrored_strategy,
    jobs.max_backoff_is_at_least_backoff,
    plans.custom_plans_have_unreserved_names,
    plans.phase_names_are_unique,
    plans.task_indexes_exist,
    plans.tasks_occur_once_per_plan,
    plans.phase_dependencies_exist,
    plans.phase_dependencies_are_acyclic,
    plans.every_job_is_in_a_plan,
    plans.update_covers_deployed_jobs,
    plans.address_dependents_start_in_parallel,
    plans.chief_phase_is_last,
    service.tls_certificate_has_key,
    service.tls_files_need_tls,
    service.statsd_is_host_and_port,
    service.api_certificate_has_key,
    service.client_certificates_need_https,
    service.writers_need_client_ca,
    service.open_api_has_no_credentials,
    service.api_tokens_are_sources,
)
