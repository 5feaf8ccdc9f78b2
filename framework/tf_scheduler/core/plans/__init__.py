"""Plans, computed from the state alone: their steps, progress and runnable steps.

definitions     recovery, decommission and uninstall plans; values derived from records and recoveries
rollout         open tasks of a roll-out, according to records and statuses; control of each plan
status_tables   rules for the statuses of steps, phases and plans
step_status     status of each step
scheduling      runnable steps and gangs; `PlanView` computes all plans, once per state; runs steps except launches
plan_commands   operators' commands, and their answers
plan_status     statuses of whole plans; due steps of the uninstall plan
"""
