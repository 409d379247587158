"""Plain-text mail by the SMTP server of the settings."""

import smtplib
import ssl
from email.message import EmailMessage

from pertoken.config import Settings
from pertoken.errors import BadInput
from pertoken.printable import literal
from pertoken.reports.delivery.secret import read_secret
from pertoken.reports.delivery.webhook import TIMEOUT_S, NotDelivered


def send(settings: Settings, subject: str, text: str, context: ssl.SSLContext | None = None) -> None:
    """Send a text to the recipients of the settings. Raises BadInput for missing settings, NotDelivered."""
    server, sender, recipients = settings.delivery_smtp, settings.delivery_mail_from, settings.delivery_mail_to
    if server is None or sender is None or not recipients:
        raise BadInput("mail needs delivery.smtp, delivery.mail_from and delivery.mail_to in the settings")
    message = EmailMessage()
    message["Subject"], message["From"], message["To"] = literal(subject), sender, ", ".join(recipients)
    message.set_content(text)
    host, _, port = server.partition(":")
    password = read_secret(settings.delivery_smtp_password_file, None, "delivery.smtp_password_file")
    try:
        with smtplib.SMTP(host, int(port or 25), timeout=TIMEOUT_S) as smtp:
            if settings.delivery_smtp_tls:
                smtp.starttls(context=context or ssl.create_default_context())
            if password is not None:
                if not settings.delivery_smtp_tls:
                    raise BadInput("delivery.smtp_tls: a password is only sent over TLS")
                smtp.login(settings.delivery_smtp_user or sender, password.decode())
            smtp.send_message(message)
    except (OSError, smtplib.SMTPException) as error:
        raise NotDelivered(f"{host}: {getattr(error, 'strerror', None) or type(error).__name__}") from None
