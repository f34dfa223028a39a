-- What is due is found by the client that is told, each of which has its turn. See 0001 for what this folder keeps to.
CREATE INDEX oidc_logouts_of_client ON oidc_logouts (client, next_at);
