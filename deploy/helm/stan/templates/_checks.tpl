{{/* What cannot be, or has no meaning any more, each with one sentence. */}}
{{- define "stan.checks" -}}
{{- $v := .Values -}}
{{- $replicas := int $v.stan.replicas -}}
{{- $clustered := $v.store.cluster.enabled -}}
{{- if regexMatch "(^|/)nats-streaming([:@]|$)" $v.stan.image -}}
{{- fail "stan.image names the old server: name an image of stan, and see docs/moving-in.md for its data" -}}
{{- end -}}
{{- if $v.stan.nats.serviceRoleAuth.enabled -}}
{{- fail "stan.nats.serviceRoleAuth has no meaning any more, as the operator of NATS is gone: use stan.credentials or config.secrets.streaming" -}}
{{- end -}}
{{- if or $v.stan.auth.username $v.stan.auth.password $v.stan.auth.token -}}
{{- fail "stan.auth.username, password and token would lie in a ConfigMap: write them into a secret and name it in config.secrets.streaming" -}}
{{- end -}}
{{- if $v.auth.enabled -}}
{{- fail "auth.enabled has no meaning any more: accounts and resolvers of NATS go into config.nats, or into a secret that config.secrets.nats names" -}}
{{- end -}}
{{- if $v.leafnodes.enabled -}}
{{- fail "leafnodes.enabled has no meaning any more: write the block leafnodes into config.nats" -}}
{{- end -}}
{{- if $v.gateway.enabled -}}
{{- fail "gateway.enabled has no meaning any more: write the block gateway into config.nats" -}}
{{- end -}}
{{- if $v.nats.externalAccess -}}
{{- fail "nats.externalAccess has no meaning any more, as no port of a host is taken: use service.type" -}}
{{- end -}}
{{- if $v.clusterReadinessProbe.enabled -}}
{{- fail "clusterReadinessProbe.enabled has no meaning any more: a node is ready by itself only when what it takes part in works" -}}
{{- end -}}
{{- if $v.store.backup.enabled -}}
{{- fail "store.backup.enabled has no meaning any more: run `stan backup` in a CronJob, or keep older messages in a bucket with stan_lake" -}}
{{- end -}}
{{- if and (eq $v.store.type "sql") (ne $v.store.sql.driver "sqlite") -}}
{{- fail (printf "store.sql.driver: %s is not to be had, the SQL store is one SQLite file: set sqlite, or better store.type: file" $v.store.sql.driver) -}}
{{- end -}}
{{- if or $v.store.sql.source $v.store.sql.initdb.enabled -}}
{{- fail "store.sql.source and store.sql.initdb have no meaning any more: the SQL store is one SQLite file in the volume" -}}
{{- end -}}
{{- if and $clustered (ne $v.store.type "file") -}}
{{- fail (printf "store.type: %s has no cluster: set store.type: file, or store.cluster.enabled: false" $v.store.type) -}}
{{- end -}}
{{- if and $clustered $v.store.ft.group -}}
{{- fail "store.cluster.enabled and store.ft.group exclude each other" -}}
{{- end -}}
{{- if and $clustered (lt $replicas 3) -}}
{{- fail "stan.replicas: a cluster begins with 3 nodes or more" -}}
{{- end -}}
{{- if and (gt $replicas 1) (not $clustered) (not $v.store.ft.group) -}}
{{- fail "stan.replicas: more than one pod needs store.cluster.enabled, or store.ft.group with a volume that all pods share" -}}
{{- end -}}
{{- if and $v.store.ft.group (not $v.store.volume.persistentVolumeClaim.claimName) -}}
{{- fail "store.ft.group needs store.volume.persistentVolumeClaim.claimName, a claim that all pods share (ReadWriteMany)" -}}
{{- end -}}
{{- if and $v.store.ft.group (not (has $v.store.type (list "file" "sql"))) -}}
{{- fail "store.ft.group needs store.type: file or sql" -}}
{{- end -}}
{{- if and $clustered $v.store.volume.persistentVolumeClaim.claimName -}}
{{- fail "store.volume.persistentVolumeClaim: nodes of a cluster have a volume each, and cannot share a claim" -}}
{{- end -}}
{{- if and (ne $v.store.type "memory") (not $v.store.volume.enabled) -}}
{{- fail "store.volume.enabled: false would lose acknowledged messages with each pod: set true, or store.type: memory" -}}
{{- end -}}
{{- if and (eq $v.store.type "file") (not (hasPrefix (printf "%s/" (trimSuffix "/" $v.store.volume.mount)) (printf "%s/" $v.store.file.path))) -}}
{{- fail "store.file.path must be in store.volume.mount, as nothing else can be written to" -}}
{{- end -}}
{{- if and $v.stan.tls.enabled (not $v.stan.tls.secretName) -}}
{{- fail "stan.tls.enabled needs stan.tls.secretName, a secret with ca.crt, tls.crt and tls.key" -}}
{{- end -}}
{{- if and $v.stan.tls.enabled (not $v.stan.nats.url) -}}
{{- fail "stan.tls is about a NATS elsewhere (stan.nats.url): TLS of the pods' own nats-servers is nats.tls" -}}
{{- end -}}
{{- if and $v.stan.nats.url (or $v.nats.tls $v.cluster.tls $v.config.secrets.nats.name) -}}
{{- fail "nats.tls, cluster.tls and config.secrets.nats are about the pods' own nats-servers, and stan.nats.url names another one" -}}
{{- end -}}
{{- if and $v.nats.tls (not (dig "secret" "name" "" $v.nats.tls)) -}}
{{- fail "nats.tls needs secret.name, a secret with tls.crt and tls.key" -}}
{{- end -}}
{{- if and $v.cluster.tls (not (dig "secret" "name" "" $v.cluster.tls)) -}}
{{- fail "cluster.tls needs secret.name, a secret with ca.crt, tls.crt and tls.key" -}}
{{- end -}}
{{- range list "port" "http" "http_port" "https_port" "listen" "net" "host" -}}
{{- if hasKey $v.config.nats . -}}
{{- fail (printf "config.nats.%s: the chart sets the ports and addresses" .) -}}
{{- end -}}
{{- end -}}
{{- range list "store" "dir" -}}
{{- if hasKey $v.config.streaming . -}}
{{- fail (printf "config.streaming.%s: this is store.type or store.file.path" .) -}}
{{- end -}}
{{- end -}}
{{- end -}}
