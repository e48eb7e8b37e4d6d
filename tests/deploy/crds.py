"""Schemas of the custom resources used in k8s/; unknown fields are rejected.

They follow KEDA's scaledobjects.keda.sh (v1alpha1), the Prometheus operator's podmonitors and
prometheusrules.monitoring.coreos.com (v1) and the Gateway API's httproutes (v1), so misspelt or
misplaced fields fail as in a cluster.
"""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]

TEXT: Schema = {"type": "string", "minLength": 1}
COUNT: Schema = {"type": "integer", "minimum": 0}
DURATION: Schema = {"type": "string", "pattern": r"^(\d+(ms|[smhdwy]))+$"}
TEXTS: Schema = {"type": "object", "additionalProperties": {"type": "string"}}


def thing(required: list[str], **properties: Schema) -> Schema:
    """Schema of an object with exactly these fields."""
    return {
        "type": "object",
        "required": required,
        "properties": properties,
        "additionalProperties": False,
    }


def many(item: Schema) -> Schema:
    return {"type": "array", "minItems": 1, "items": item}


def resource(version: str, kind: str, spec: Schema) -> Schema:
    metadata = {
        "type": "object",
        "required": ["name"],
        "properties": {"name": TEXT, "namespace": TEXT, "labels": TEXTS, "annotations": TEXTS},
    }
    return thing(
        ["apiVersion", "kind", "metadata", "spec"],
        apiVersion={"const": version},
        kind={"const": kind},
        metadata=metadata,
        spec=spec,
    )


SCALING_POLICY = thing(
    ["type", "value", "periodSeconds"],
    type={"enum": ["Pods", "Percent"]},
    value=COUNT,
    periodSeconds=COUNT,
)
SCALING_RULES = thing(
    [],
    stabilizationWindowSeconds=COUNT,
    selectPolicy={"enum": ["Max", "Min", "Disabled"]},
    policies=many(SCALING_POLICY),
)
TRIGGER = thing(
    ["type", "metadata"],
    type={"const": "prometheus"},
    name=TEXT,
    metricType={"enum": ["AverageValue", "Value", "Utilization"]},
    # every value of a trigger's metadata is a string
    metadata=thing(
        ["serverAddress", "query", "threshold"],
        serverAddress=TEXT,
        query=TEXT,
        threshold=TEXT,
        activationThreshold=TEXT,
        ignoreNullValues=TEXT,
        namespace=TEXT,
    ),
)
SCALED_OBJECT = thing(
    ["scaleTargetRef", "triggers"],
    scaleTargetRef=thing(
        ["name"], name=TEXT, kind=TEXT, apiVersion=TEXT, envSourceContainerName=TEXT
    ),
    minReplicaCount=COUNT,
    maxReplicaCount=COUNT,
    idleReplicaCount=COUNT,
    pollingInterval=COUNT,
    cooldownPeriod=COUNT,
    initialCooldownPeriod=COUNT,
    fallback=thing(
        ["failureThreshold", "replicas"], failureThreshold=COUNT, replicas=COUNT, behavior=TEXT
    ),
    advanced=thing(
        [],
        restoreToOriginalReplicaCount={"type": "boolean"},
        horizontalPodAutoscalerConfig=thing(
            [], name=TEXT, behavior=thing([], scaleUp=SCALING_RULES, scaleDown=SCALING_RULES)
        ),
    ),
    triggers=many(TRIGGER),
)

RELABELING = thing(
    [],
    sourceLabels=many(TEXT),
    separator=TEXT,
    targetLabel=TEXT,
    regex=TEXT,
    replacement=TEXT,
    action=TEXT,
)
ENDPOINT = thing(
    [],
    port=TEXT,
    path=TEXT,
    scheme=TEXT,
    interval=DURATION,
    scrapeTimeout=DURATION,
    honorLabels={"type": "boolean"},
    relabelings=many(RELABELING),
)
POD_MONITOR = thing(
    ["selector", "podMetricsEndpoints"],
    selector=thing([], matchLabels=TEXTS, matchExpressions=many({"type": "object"})),
    namespaceSelector=thing([], any={"type": "boolean"}, matchNames=many(TEXT)),
    jobLabel=TEXT,
    podTargetLabels=many(TEXT),
    podMetricsEndpoints=many(ENDPOINT),
)

RULE = thing(
    ["expr"],
    alert=TEXT,
    record=TEXT,
    expr=TEXT,
    **{"for": DURATION},
    labels=TEXTS,
    annotations=TEXTS,
    keep_firing_for=DURATION,
)
PROMETHEUS_RULE = thing(
    ["groups"],
    groups=many(thing(["name", "rules"], name=TEXT, interval=DURATION, rules=many(RULE))),
)

HTTP_ROUTE = thing(
    ["parentRefs", "rules"],
    parentRefs=many(thing(["name"], name=TEXT, namespace=TEXT, sectionName=TEXT, port=COUNT)),
    hostnames=many({"type": "string", "pattern": r"^(\*\.)?[a-z0-9.-]+$"}),
    rules=many(
        thing(
            ["backendRefs"],
            matches=many(
                thing(
                    [],
                    path=thing(
                        ["type", "value"],
                        type={"enum": ["Exact", "PathPrefix", "RegularExpression"]},
                        value=TEXT,
                    ),
                )
            ),
            timeouts=thing([], request=DURATION, backendRequest=DURATION),
            backendRefs=many(thing(["name"], name=TEXT, port=COUNT, weight=COUNT)),
        )
    ),
)

SCHEMAS = {
    "HTTPRoute": resource("gateway.networking.k8s.io/v1", "HTTPRoute", HTTP_ROUTE),
    "ScaledObject": resource("keda.sh/v1alpha1", "ScaledObject", SCALED_OBJECT),
    "PodMonitor": resource("monitoring.coreos.com/v1", "PodMonitor", POD_MONITOR),
    "PrometheusRule": resource("monitoring.coreos.com/v1", "PrometheusRule", PROMETHEUS_RULE),
}
