"""Names of products: a request that names one which no tool knows is answered by no tool, however alike the verb is."""

from __future__ import annotations

PRODUCTS = frozenset(
    """
    salesforce hubspot pipedrive zoho zendesk freshdesk servicenow intercom paypal adyen quickbooks xero odoo shopify
    woocommerce magento bamboohr workday jira asana trello clickup todoist basecamp smartsheet youtrack redmine
    slack discord telegram whatsapp mattermost zulip gmail mailchimp mailgun sendgrid twilio vonage webex calendly
    twitter linkedin reddit facebook instagram tiktok youtube bluesky mastodon wechat github gitlab bitbucket gitea
    mysql mariadb redis snowflake bigquery databricks dynamodb firestore supabase airtable neo4j pinecone qdrant
    kubernetes docker terraform ansible jenkins circleci grafana prometheus datadog pagerduty opsgenie splunk sentry
    cloudflare vercel netlify heroku digitalocean dropbox onedrive sharepoint figma canva photoshop spotify tableau
    powerbi looker mixpanel posthog kaggle huggingface confluence evernote okta auth0 zapier airbnb netflix uber
    """.split()
)
"""Names that mean a product and nothing else; words of everyday English are left out."""
