"""Plans: which steps exist, how far they are, and which may run now. Pure: computed from the state, once per state.

definitions     phases and steps of each plan; values derived from records and recoveries
rollout         open tasks of a roll-out, according to records and statuses
tables          state machines of steps, phases and plans
step_status     status of each step
scheduling      runnable steps and gangs; `PlanView` holds all plans of one state
execute         actions of plans: stop launches, forget tasks, complete plans
commands        operators' commands, and their answers
view            plans for display, and the uninstall plan
"""
