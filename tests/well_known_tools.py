"""Definitions of a few dozen tools as well-known servers offer them, by server; for tests of search."""

from __future__ import annotations

from typing import Any

from portico.testing import definition

WELL_KNOWN: dict[str, list[dict[str, Any]]] = {
    "github": [
        definition("create_issue", "Create a new issue in a repository", owner="string", repo="string", title="string"),
        definition("close_issue", "Close an issue in a repository", number="integer"),
        definition("search_repositories", "Search for repositories on GitHub", query="string"),
        definition("create_pull_request", "Create a pull request from a branch", head="string", base="string"),
        definition("merge_pull_request", "Merge a pull request", number="integer"),
        definition("list_commits", "List the commits of a branch", branch="string"),
        definition("fork_repository", "Fork a repository to your account", repo="string"),
    ],
    "slack": [
        definition("post_message", "Post a message to a Slack channel", channel="string", text="string"),
        definition("list_channels", "List the channels of the Slack workspace"),
        definition("add_reaction", "Add an emoji reaction to a message", emoji="string"),
    ],
    "files": [
        definition("read_file", "Read the contents of a file, such as a text or CSV file", path="string"),
        definition("write_file", "Write text to a file, or create a new one", path="string", content="string"),
        definition("delete_file", "Delete a file for good", path="string"),
        definition("move_file", "Move or rename a file", source="string", destination="string"),
        definition("create_folder", "Create a new folder", path="string"),
        definition("list_folder", "List the files in a folder", path="string"),
        definition("replace_text", "Search and replace text in a file", old="string", new="string"),
    ],
    "mail": [
        definition("send_email", "Send an email to one or more recipients", to="string", subject="string"),
        definition("search_emails", "Search the mailbox for emails", query="string"),
        definition("create_draft", "Write a draft of an email without sending it", body="string"),
    ],
    "calendar": [
        definition("create_event", "Create an event or a meeting in the calendar", title="string", start="string"),
        definition("list_events", "List the calendar events of a day", day="string"),
        definition("find_free_time", "Find when all attendees are free to meet", attendees="array"),
    ],
    "weather": [
        definition("get_forecast", "Get the weather forecast for a city", city="string"),
        definition("get_alerts", "Get severe weather alerts for a region", region="string"),
    ],
    "database": [
        definition("run_query", "Run a SQL query against the database", sql="string"),
        definition("list_tables", "List the tables of the database"),
        definition("describe_table", "Show the columns of a table and their types", table="string"),
    ],
    "browser": [
        definition("take_screenshot", "Take a screenshot of a web page", url="string"),
        definition("click_element", "Click on an element of the page", selector="string"),
        definition("fill_form", "Fill in the fields of a form", fields="object"),
    ],
    "images": [
        definition("convert_to_grayscale", "Make a black and white image out of a colour one", path="string"),
        definition("resize_image", "Change the size of an image", width="integer", height="integer"),
        definition("generate_image", "Generate a picture from a description", prompt="string"),
    ],
    "money": [
        definition("convert_currency", "Convert an amount of money from one currency to another", amount="number"),
        definition("get_stock_price", "Get the current price of a stock", symbol="string"),
    ],
    "travel": [
        definition("book_flight", "Book a flight between two airports", origin="string", destination="string"),
        definition("search_hotels", "Search for hotels in a city", city="string"),
    ],
    "language": [
        definition("translate_text", "Translate text from one language into another", text="string", target="string"),
        definition("summarize_text", "Summarize a long text in a few sentences", text="string"),
    ],
    "legal": [
        definition("get_terms", "Get the terms and conditions of a contract", contract="string"),
    ],
}
"""Server -> tool definitions."""
