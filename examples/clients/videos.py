#!/usr/bin/env python3
"""A video from a running `longtake serve`, with the official OpenAI SDK (pip install openai).

    videos.py "a red ball bounces on green grass" out.mp4
"""
import os
import sys

import openai

client = openai.OpenAI(base_url=os.environ.get("LONGTAKE_URL", "http://127.0.0.1:8080") + "/v1",
                       api_key=os.environ.get("LONGTAKE_TOKEN", "none"))
video = client.videos.create_and_poll(prompt=sys.argv[1], seconds="5", extra_body={"mode": "ar"})
if video.status != "completed":
    sys.exit(video.error.message)
client.videos.download_content(video.id).write_to_file(sys.argv[2])
client.videos.delete(video.id)
