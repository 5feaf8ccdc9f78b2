"""Plans, computed from the state alone: their steps, progress and runnable steps.

definitions     phases and steps of each plan; values derived from records and recoveries
rollout         open tasks of a roll-out, according to records and statuses
tables          state machines of steps, phases and plans
step_status     status of each step
scheduling      runnable steps and gangs; `PlanView` computes all plans, once per state
execute         actions of plans: stop launches, forget tasks, complete plans
commands        operators' commands, and their answers
view            plans for display, and the uninstall plan
"""
