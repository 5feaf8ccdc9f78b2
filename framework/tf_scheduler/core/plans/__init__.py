"""Plans: what is to be done, in which order, and how far it is. Pure: computed from the state, once per state.

define     which plans, phases and steps there are
facts      what the records say: which tasks are open
standing   the status of each step; tables has the state machines
strategy   whose turn it is; claims: without what is interrupted and what other plans work on
wanted     which tasks are to be placed now
base       what plans depend on, and what follows from parts of it; plan_view: all of it, computed once and handed down
act        what plans do by themselves: tell tasks to end, forget them, note that they are complete
command    what operators want, and the answers
questions  what else the core asks: what a task is launched with, and whether its end matters
view       plans as they are shown
"""
