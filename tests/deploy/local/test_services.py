"""The shared services of the tests are what they promise to be."""

import psycopg
import pytest
from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import ListSearchAttributesRequest
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest

from deploy.local import temporal
from deploy.local.postgres import LOGINS, OWNER


def test_every_login_gets_in_and_none_but_the_owner_can_create_tables(empty_database):
    for login in LOGINS:
        with empty_database.connect(login) as connection:
            assert connection.execute("SELECT current_user").fetchone() == (login,)
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute("CREATE TABLE public.mine (id int)")
    with empty_database.connect(OWNER) as connection:
        connection.execute("CREATE TABLE public.ours (id int)")


def test_a_wrong_password_is_refused(empty_database):
    address = empty_database.url("refunds_api").replace("postgresql+psycopg", "postgresql")
    right = psycopg.conninfo.conninfo_to_dict(address)
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(**{**right, "password": "wrong"})


def test_fresh_databases_share_nothing(postgres_server, empty_database):
    with empty_database.connect(OWNER) as connection:
        connection.execute("CREATE TABLE public.ours (id int)")
    postgres_server.create_database("another")
    with postgres_server.connect(OWNER, "another") as connection:
        assert connection.execute("SELECT to_regclass('public.ours')").fetchone() == (None,)
    postgres_server.drop_database("another")


async def test_temporal_has_our_search_attributes_and_keeps_runs_for_90_days(temporal_client):
    service = temporal_client.workflow_service
    described = await service.describe_namespace(DescribeNamespaceRequest(namespace="default"))
    assert described.config.workflow_execution_retention_ttl.ToTimedelta().days == 90
    listed = await temporal_client.operator_service.list_search_attributes(ListSearchAttributesRequest(namespace="default"))
    kinds = {name: IndexedValueType.Name(kind) for name, kind in listed.custom_attributes.items()}
    expected = {name: f"INDEXED_VALUE_TYPE_{kind.upper()}" for name, kind in temporal.SEARCH_ATTRIBUTES.items()}
    assert {name: kinds.get(name) for name in expected} == expected


async def test_time_skipping_server_answers(temporal_env):
    assert temporal_env.supports_time_skipping_v2


def test_sandbox_is_as_new_for_each_test(sandbox):
    assert sandbox.control("GET", "/clock")["shifted_seconds"] == 0
    sandbox.control("POST", "/clock", {"advance_seconds": 60})
    assert sandbox.control("GET", "/clock")["shifted_seconds"] == 60


def test_sandbox_forgot_what_the_test_before_did(sandbox):
    assert sandbox.control("GET", "/clock")["shifted_seconds"] == 0
