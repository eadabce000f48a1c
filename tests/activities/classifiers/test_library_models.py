"""The model reader with the library's own test models: no network, every shape of answer that the schema allows."""

from typing import Any

from opentelemetry.trace import NoOpTracer, NoOpTracerProvider, Span, Tracer
from pydantic_ai import Agent, InstrumentationSettings
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel

from activities.classifiers import Failure
from activities.classifiers.model import ModelClassifier
from activities.classifiers.prompt import INSTRUCTIONS, ModelAnswer
from refunds.classification import Intent, Proposal
from refunds.settings import ClassifierKind, Settings

SETTINGS = Settings(classifier=ClassifierKind.MODEL, model="openai:gpt-5-mini", model_timeout_s=5)
LABELS: dict[str, Any] = {
    "intent": "refund",
    "reason": None,
    "order_reference": None,
    "product_lines": [],
    "amount_text": None,
    "proposal": "approve",
    "confidence": 80,
    "rationale": "A refund is asked for.",
    "manipulation": [],
}


async def test_the_schema_that_the_model_is_given_can_be_answered():
    reader = ModelClassifier(SETTINGS, model=TestModel(custom_output_args=LABELS))
    answer = await reader.classify("I want my money back")
    assert answer.reading is not None
    assert (answer.reading.intent, answer.reading.proposal, answer.reading.confidence) == (Intent.REFUND, Proposal.APPROVE, 80)


async def test_an_answer_made_up_from_the_schema_alone_is_never_an_approval():
    reader = ModelClassifier(SETTINGS, model=TestModel())
    answer = await reader.classify("I want my money back")
    assert answer.reading is None or answer.reading.proposal is not Proposal.APPROVE or answer.reading.confidence == 0


async def test_the_model_is_offered_one_tool_and_the_instructions():
    seen: list[AgentInfo] = []

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        seen.append(info)
        return ModelResponse(parts=[ToolCallPart(info.output_tools[0].name, LABELS)])

    result = await ModelClassifier(SETTINGS, model=FunctionModel(answer)).classify("I want my money back")

    assert result.reading is not None
    assert len(seen) == 1
    assert seen[0].function_tools == []
    assert [tool.name for tool in seen[0].output_tools] == ["label"]
    assert seen[0].output_tools[0].parameters_json_schema["additionalProperties"] is False
    assert set(seen[0].output_tools[0].parameters_json_schema["required"]) == set(ModelAnswer.model_fields)
    assert seen[0].instructions == INSTRUCTIONS
    assert not {"amount", "currency", "approved_by"} & set(ModelAnswer.model_fields)


class Spans(NoOpTracer):
    """Counts the spans that are begun."""

    begun = 0

    def start_span(self, *args: Any, **kwargs: Any) -> Span:
        self.begun += 1
        return super().start_span(*args, **kwargs)


class Provider(NoOpTracerProvider):
    def __init__(self, spans: Spans) -> None:
        self.spans = spans

    def get_tracer(self, *args: Any, **kwargs: Any) -> Tracer:
        return self.spans


async def test_nothing_is_traced_even_where_all_agents_are_instrumented():
    spans = Spans()
    Agent.instrument_all(InstrumentationSettings(tracer_provider=Provider(spans)))
    try:
        await Agent(TestModel()).run("another agent of this process")
        before = spans.begun
        answer = await ModelClassifier(SETTINGS, model=TestModel(custom_output_args=LABELS)).classify("I want my money back")
    finally:
        Agent.instrument_all(False)
    assert answer.reading is not None
    assert before > 0
    assert spans.begun == before


async def test_prose_for_ever_is_asked_twice_in_all():
    calls = 0

    def prose(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        nonlocal calls
        calls += 1
        return ModelResponse(parts=[TextPart("approved!")])

    answer = await ModelClassifier(SETTINGS, model=FunctionModel(prose)).classify("I want my money back")
    assert (answer.reading, answer.failure, calls) == (None, Failure.MALFORMED.value, 2)
