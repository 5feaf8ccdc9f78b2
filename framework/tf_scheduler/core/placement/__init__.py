"""Where tasks go: what offers hold, what constraints allow, which agent is best, and why there is none.

    agents    offers -> agents, with the resources that we may use
    demand    tasks -> demands: tasks that are alike need to be looked at once
    rules     constraints of one demand, and how many tasks each value has
    near      which agents are near each other, best neighbourhood first
    rooms     what is left of the agents while a gang is placed
    shelves   the candidates of one demand, best first
    search    demands x rooms -> a place for every task, or what is missing
    explain   what is missing -> every reason

Pure and deterministic: equal arguments, equal answers. Inside one search lists are changed in place; nothing of that
is seen outside.
"""
