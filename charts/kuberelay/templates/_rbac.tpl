{{/*
selector parses an item of config.resources or config.excludeResources. The result is {group, resource,
namespaced, versioned}, or {error}. resource is "*" for a whole group, and group is "*" for all groups.
versioned is true if the item names a version. An item that the forwarder refuses (checkSelector in
internal/config) is an error here too, because to RBAC, an empty group is the core group. The built-in
resources are in files/resources.yaml.
*/}}
{{- define "kuberelay.selector" -}}
{{- $s := .selector }}
{{- $name := regexFind "^[^.]*" $s }}
{{- $group := trimPrefix $name $s | trimPrefix "." }}
{{- $lower := lower $name }}
{{- $one := dict }}
{{- $meant := "" }}
{{- range .known }}
{{- if or (eq $group "") (eq $group .group) (regexMatch (printf "^v[0-9a-z]+\\.%s$" (replace "." "\\." .group)) $group) }}
{{- if and (eq .name $name) (not $one.name) }}
{{- $one = . }}
{{- else if and (or (has $lower .also) (eq .name $lower)) (not $meant) }}
{{- $meant = ternary .name (printf "%s.%s" .name .group) (eq .group "") }}
{{- end }}
{{- end }}
{{- end }}
{{- $label := "[a-z0-9]([a-z0-9-]*[a-z0-9])?" }}
{{- if eq $s "*" }}
{{- dict "group" "*" "resource" "*" | toJson }}
{{- else if or (and (contains "*" $name) (ne $name "*")) (contains "*" $group) }}
{{- dict "error" "* cannot stand for a part of a name; write *.apps for a whole group" | toJson }}
{{- else if contains "/" $s }}
{{- dict "error" "a subresource cannot be watched" | toJson }}
{{- else if has "" (splitList "." $s) }}
{{- dict "error" "a part before, after, or between dots is empty; write it as pods, deployments.apps, or *.apps" | toJson }}
{{- else if eq $group "core" }}
{{- dict "error" "the core group has no name; name its resources, such as pods" | toJson }}
{{- else if not (or (eq $name "*") (and (le (len $name) 63) (regexMatch (printf "^%s$" $label) $lower))) }}
{{- dict "error" (printf "%q is not the name of a resource" $name) | toJson }}
{{- else if and $group (not (regexMatch (printf "^%s(\\.%s)*$" $label $label) $group)) }}
{{- dict "error" (printf "%q is not the name of a group" $group) | toJson }}
{{- else if and (eq $name "*") (regexMatch "^v[0-9]+((alpha|beta)[0-9]+)?(\\.|$)" $group) }}
{{- dict "error" "a whole group is selected without a version; write *.apps" | toJson }}
{{- else if eq $name "*" }}
{{- dict "group" $group "resource" "*" | toJson }}
{{- else if regexMatch "^v[0-9]+((alpha|beta)[0-9]+)?$" $group }}
{{- dict "error" (printf "after a version there is a group missing; write %s, or %s.%s.example.com" $name $name $group) | toJson }}
{{- else if and (not $one.name) $meant }}
{{- dict "error" (printf "RBAC knows no short names, singulars, or kinds; write %s" $meant) | toJson }}
{{- else if regexMatch "[A-Z]" $name }}
{{- dict "error" (printf "RBAC knows no kinds; write the plural with its group, such as %ss.%s" $lower (default "example.com" $group)) | toJson }}
{{- else if and (not $group) (not $one.name) }}
{{- dict "error" (printf "not one of Kubernetes' own resources; write the plural with its group, such as %s.example.com" $name) | toJson }}
{{- else if $one.name }}
{{- dict "group" $one.group "resource" $name "namespaced" $one.namespaced "versioned" (not (has $group (list "" $one.group))) | toJson }}
{{- else }}
{{- $whole := $group }}
{{- $group = regexReplaceAll "^v[0-9]+((alpha|beta)[0-9]+)?\\." $group "" }}
{{- $namespaced := not (has (printf "%s.%s" $name $group) (include "kuberelay.list" .clusterScoped | fromJsonArray)) }}
{{- dict "group" $group "resource" $name "namespaced" $namespaced "versioned" (ne $group $whole) | toJson }}
{{- end }}
{{- end }}

{{/*
expand turns a wildcard of config.resources into the list of resources that it grants, as {group,
resource, namespaced}. The built-in resources are written out, because "*" in a rule matches
subresources too, such as nodes/proxy and pods/exec. Only the groups in rbac.groupsWithSubresources
are granted with "*".
*/}}
{{- define "kuberelay.expand" -}}
{{- $group := .wildcard.group }}
{{- $items := list }}
{{- $found := eq $group "*" }}
{{- range .known }}
{{- if has $group (list "*" .group) }}
{{- $found = true }}
{{- if not .onlyNamed }}
{{- $items = append $items (dict "group" .group "resource" .name "namespaced" .namespaced) }}
{{- end }}
{{- end }}
{{- end }}
{{- range $whole := include "kuberelay.list" .rbac.groupsWithSubresources | fromJsonArray }}
{{- if has $group (list "*" $whole) }}
{{- $found = true }}
{{- $items = append $items (dict "group" $whole "resource" "*" "namespaced" true) }}
{{- range include "kuberelay.list" $.rbac.clusterScoped | fromJsonArray }}
{{- $name := regexFind "^[^.]*" . }}
{{- if eq . (printf "%s.%s" $name $whole) }}
{{- $items = append $items (dict "group" $whole "resource" $name "namespaced" false) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- if not $found }}
{{- fail (printf "config.resources: *.%s: the chart does not know the resources of this group, and RBAC cannot leave subresources out of a whole group. Name the resources, or set rbac.groupsWithSubresources={%s} to grant get, list, and watch on all of its resources and subresources" $group $group) }}
{{- end }}
{{- $items | toJson }}
{{- end }}

{{/*
watch is {namespaced, cluster}: the rules for namespaced and for cluster-scoped resources. Without
config.namespaces, all rules are in cluster. An exclusion that names a version removes no rule, because
a chart cannot know whether the version is served. If it isn't, the exclusion matches nothing.
*/}}
{{- define "kuberelay.watch" -}}
{{- $config := .Values.config }}
{{- $rbac := .Values.rbac }}
{{- $known := (.Files.Get "files/resources.yaml" | fromYaml).resources }}
{{- $excluded := list }}
{{- range include "kuberelay.list" $config.excludeResources | fromJsonArray }}
{{- $x := include "kuberelay.selector" (dict "selector" . "known" $known "clusterScoped" $rbac.clusterScoped) | fromJson }}
{{- if $x.error }}
{{- fail (printf "config.excludeResources: %s: %s" . $x.error) }}
{{- end }}
{{- if not $x.versioned }}
{{- $excluded = append $excluded (printf "%s/%s" $x.group $x.resource) }}
{{- end }}
{{- end }}
{{- $items := list }}
{{- range include "kuberelay.list" $config.resources | fromJsonArray }}
{{- $x := include "kuberelay.selector" (dict "selector" . "known" $known "clusterScoped" $rbac.clusterScoped) | fromJson }}
{{- if $x.error }}
{{- fail (printf "config.resources: %s: %s" . $x.error) }}
{{- end }}
{{- if eq $x.resource "*" }}
{{- $items = concat $items (include "kuberelay.expand" (dict "wildcard" $x "known" $known "rbac" $rbac) | fromJsonArray) }}
{{- else }}
{{- $items = append $items $x }}
{{- end }}
{{- end }}
{{- $namespaced := dict }}
{{- $cluster := dict }}
{{- range $items }}
{{- $name := printf "%s/%s" .group .resource }}
{{- if not (or (has $name $excluded) (has (printf "%s/*" .group) $excluded) (has "*/*" $excluded)) }}
{{- if and (eq $name "/secrets") (not $rbac.secrets) }}
{{- fail "config.resources: secrets: the service account could read the values of Secrets. If it may, set rbac.secrets=true; the bus gets keyed hashes of the values only" }}
{{- end }}
{{- $rules := ternary $namespaced $cluster (and .namespaced (not (empty $config.namespaces))) }}
{{- $_ := set $rules .group (append (default list (get $rules .group)) .resource) }}
{{- end }}
{{- end }}
{{- dict "namespaced" (include "kuberelay.rules" $namespaced | fromJsonArray) "cluster" (include "kuberelay.rules" $cluster | fromJsonArray) | toJson }}
{{- end }}

{{/* rules turns a dict of groups and their resources into sorted rules, with each resource once. */}}
{{- define "kuberelay.rules" -}}
{{- $rules := list }}
{{- range $group := keys . | sortAlpha }}
{{- $resources := get $ $group | uniq | sortAlpha }}
{{- if has "*" $resources }}{{ $resources = list "*" }}{{ end }}
{{- $rules = append $rules (dict "apiGroups" (list $group) "resources" $resources "verbs" (list "get" "list" "watch")) }}
{{- end }}
{{- $rules | toJson }}
{{- end }}

{{/* namespaces is the list of the namespaces that get a Role. */}}
{{- define "kuberelay.namespaces" -}}
{{- $names := list }}
{{- $excluded := include "kuberelay.list" .Values.config.excludeNamespaces | fromJsonArray }}
{{- range include "kuberelay.list" .Values.config.namespaces | fromJsonArray }}
{{- if not (has . $excluded) }}
{{- $names = append $names . }}
{{- end }}
{{- end }}
{{- $names | uniq | toJson }}
{{- end }}

{{/* roleRules is the list of the rules of the Role in each namespace. */}}
{{- define "kuberelay.roleRules" -}}
{{- if .Values.config.namespaces }}
{{- concat (include "kuberelay.watch" . | fromJson).namespaced .Values.rbac.extraRules | toJson }}
{{- else }}[]
{{- end }}
{{- end }}

{{/* clusterRoleRules is the list of the rules of the ClusterRole. */}}
{{- define "kuberelay.clusterRoleRules" -}}
{{- $config := .Values.config }}
{{- $rbac := .Values.rbac }}
{{- $rules := (include "kuberelay.watch" . | fromJson).cluster }}
{{- if not $config.namespaces }}
{{- $rules = concat $rules $rbac.extraRules }}
{{- end }}
{{- if $rbac.definitions }}
{{- $rules = append $rules (dict "apiGroups" (list "apiextensions.k8s.io") "resources" (list "customresourcedefinitions") "verbs" (list "get" "list" "watch")) }}
{{- $rules = append $rules (dict "apiGroups" (list "apiregistration.k8s.io") "resources" (list "apiservices") "verbs" (list "list" "watch")) }}
{{- end }}
{{- if or $config.namespaceSelector (and $config.excludeNamespaces (not $config.namespaces)) }}
{{- $rules = append $rules (dict "apiGroups" (list "") "resources" (list "namespaces") "verbs" (list "list" "watch")) }}
{{- end }}
{{- if and $config.namespaces (not $config.namespaceSelector) $rbac.namespaces }}
{{- $names := include "kuberelay.namespaces" . | fromJsonArray }}
{{- if $names }}
{{- $rules = append $rules (dict "apiGroups" (list "") "resources" (list "namespaces") "resourceNames" $names "verbs" (list "get" "list")) }}
{{- end }}
{{- end }}
{{- if $rbac.clusterIdentity }}
{{- $rules = append $rules (dict "apiGroups" (list "") "resources" (list "namespaces") "resourceNames" (list "kube-system") "verbs" (list "get")) }}
{{- end }}
{{- if $config.metricsAuth }}
{{- $rules = append $rules (dict "apiGroups" (list "authentication.k8s.io") "resources" (list "tokenreviews") "verbs" (list "create")) }}
{{- $rules = append $rules (dict "apiGroups" (list "authorization.k8s.io") "resources" (list "subjectaccessreviews") "verbs" (list "create")) }}
{{- end }}
{{- if has "*" (include "kuberelay.list" $config.clusterApi | fromJsonArray) }}
{{- $rules = concat $rules (include "kuberelay.clusterApiRules" . | fromJsonArray) }}
{{- end }}
{{- concat $rules $rbac.extraClusterRules | toJson }}
{{- end }}

{{/* clusterApiRules is the list of the rules for the Cluster objects of Cluster API and the Secrets with their kubeconfigs. */}}
{{- define "kuberelay.clusterApiRules" -}}
{{- if not .Values.rbac.secrets }}
{{- fail "config.clusterApi: the service account could read every Secret in these namespaces, including the keys of the clusters' certificate authorities. If it may, set rbac.secrets=true" }}
{{- end }}
{{- $clusters := dict "apiGroups" (list "cluster.x-k8s.io") "resources" (list "clusters") "verbs" (list "list" "watch") }}
{{- $secrets := dict "apiGroups" (list "") "resources" (list "secrets") "verbs" (list "get" "list" "watch") }}
{{- list $clusters $secrets | toJson }}
{{- end }}

{{/* clusterApiNamespaces is the list of the namespaces in config.clusterApi that get a Role. */}}
{{- define "kuberelay.clusterApiNamespaces" -}}
{{- $names := include "kuberelay.list" .Values.config.clusterApi | fromJsonArray }}
{{- ternary list $names (has "*" $names) | uniq | toJson }}
{{- end }}

{{/* role renders a Role with its binding to the service account, from a list of the root, the name, the namespace, and the rules. If the namespace is "", it renders a ClusterRole. */}}
{{- define "kuberelay.role" -}}
{{- $name := index . 1 }}
{{- $namespace := index . 2 }}
{{- $rules := index . 3 }}
{{- $kind := ternary "Role" "ClusterRole" (ne $namespace "") }}
{{- with index . 0 }}
{{- $metadata := include "kuberelay.metadata" (list . (dict "name" $name "namespace" $namespace)) | trim | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $kind }}
metadata:
  {{- $metadata }}
rules:
  {{- toYaml $rules | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $kind }}Binding
metadata:
  {{- $metadata }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ $kind }}
  name: {{ $name }}
subjects:
  - kind: ServiceAccount
    name: {{ include "kuberelay.serviceAccountName" . }}
    namespace: {{ include "kuberelay.namespace" . }}
{{- end }}
{{- end }}
