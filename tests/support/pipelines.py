"""Pipeline files that read one stream."""

from __future__ import annotations

from pathlib import Path

from jetspark.spark.pipelines.pipeline_file import PipelineFile, read_pipeline


def pipeline_of(
    url: str, stream: str, folder: Path, *parts: str, options: str = ""
) -> PipelineFile:
    """Its source is `orders`, of which these are further options; its checkpoint is `chk`."""
    file = folder / "pipeline.toml"
    file.write_text(
        f"""
checkpoint = "{folder}/chk"
[sources.orders]
servers = "{url}"
stream = "{stream}"
starting_offsets = "earliest"
{options}
{"".join(parts)}
""",
        "utf-8",
    )
    return read_pipeline(file)
