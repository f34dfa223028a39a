-- Networks are found as addresses are. See 0001 for what this folder keeps to.
CREATE INDEX events_by_network ON events (network_key, at) WHERE network_key IS NOT NULL;
