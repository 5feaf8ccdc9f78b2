"""`dcos-tensorflow doctor`: gather facts about a cluster and service, judge them."""
